"""Stop words: articles, pronouns, prepositions, conjunctions and auxiliaries, which text search skips.

Our own lists of a few dozen to two hundred function words per language; MongoDB's differ in some words. They are
compared in lower case and with their diacritics.
"""

from typing import Final

STOP_WORDS: Final[dict[str, str]] = {
    "danish": """
        ad af al alle alt anden at blev blive bliver da de dem den denne der deres det dette dig din dine disse dit
        dog du efter eller en end er et for fra ham han hans har havde have hende hendes her hos hun hvad hvem hver
        hvilken hvis hvor hvordan hvorfor i ikke ind ingen intet jeg jer jeres jo kan kunne man mange med meget men
        mig min mine mit mod ned noget nogle nogen nu når og også om op os over på selv sig sin sine sit skal skulle
        som sådan thi til ud under var vi vil ville vor være været
    """,
    "dutch": """
        aan al alles als altijd andere ben bij daar dan dat de der deze die dit doch doen door dus een eens en er ge
        geen geweest haar had heb hebben heeft hem het hier hij hoe hun iemand iets ik in is ja je jij jou jouw jullie
        kan kon kunnen maar me meer men met mij mijn moet na naar niet niets nog nu of om omdat onder ons onze ook op
        over reeds te tegen toch toen tot u uit uw van veel voor want waren was wat we werd wezen wie wij wil worden
        wordt ze zelf zich zij zijn zo zonder zou
    """,
    "english": """
        a about above after again against all am an and any are aren't as at be because been before being below
        between both but by can't cannot could couldn't did didn't do does doesn't doing don't down during each few
        for from further had hadn't has hasn't have haven't having he he'd he'll he's her here here's hers herself him
        himself his how how's i i'd i'll i'm i've if in into is isn't it it's its itself let's me more most mustn't my
        myself no nor not of off on once only or other ought our ours ourselves out over own same shan't she she'd
        she'll she's should shouldn't so some such than that that's the their theirs them themselves then there
        there's these they they'd they'll they're they've this those through to too under until up very was wasn't we
        we'd we'll we're we've were weren't what what's when when's where where's which while who who's whom why why's
        with won't would wouldn't you you'd you'll you're you've your yours yourself yourselves
    """,
    "finnish": """
        ei eivät emme en et ette että he heidän heidät heille heillä heiltä heissä heistä heitä hän häneen hänelle
        hänellä häneltä hänen hänessä hänestä hänet häntä itse ja jo johon joiden joihin joiksi joilla joille joilta
        joina joissa joista joita joka joksi jolla jolle jolta jona jonka jos jossa josta jota jotka kanssa keiden
        keihin keille keillä keiltä keissä keistä keitä kenelle kenellä keneltä kenen kenessä kenestä kenet ketkä ketä
        koska kuin kuka kun me meidän meidät meille meillä meiltä meissä meistä meitä mihin mikä mille millä miltä
        minkä minua minulla minulle minulta minun minussa minusta minut minä missä mistä mitkä mitä mukaan mutta ne
        niiden niihin niille niillä niiltä niin niissä niistä niitä noiden noita nuo nyt näiden näitä nämä ole olemme
        olen olet olette oli olimme olin olisi olit olivat olla olleet ollut on ovat poikki se sekä sen siihen siinä
        siitä sille sillä siltä sinua sinulla sinulle sinulta sinun sinussa sinusta sinut sinä sitä tai te teidän
        teidät teille teillä teiltä teissä teistä teitä tuo tuon tuota tähän tälle tällä tältä tämä tämän tässä tästä
        tätä vaan vai vaikka yli
    """,
    "french": """
        a à ai aie aient aies ait as au aura aurai auraient aurais aurait auras aurez auriez aurions aurons auront aux
        avaient avais avait avec avez aviez avions avons ayant c ce ces cet cette d dans de des du elle elles en es
        est et étaient étais était étant été étés étée étées êtes étiez étions eu eue eues eurent eus eut eux fûmes
        furent fus fut il ils j je l la le les leur leurs lui m ma mais me même mes moi mon n ne nos notre nous on ont
        ou où par pas pour qu que qui s sa se sera serai seraient serais serait seras serez seriez serions serons
        seront ses soi soient sois soit sommes son sont soyez soyons suis sur t ta te tes toi ton tu un une vos votre
        vous y
    """,
    "german": """
        aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus bei
        bin bis bist da damit dann das dass daß dasselbe dazu dein deine deinem deinen deiner deines dem demselben den
        denn denselben der derselbe derselben des desselben dessen dich die dies diese dieselbe dieselben diesem
        diesen dieser dieses dir doch dort du durch ein eine einem einen einer eines einig einige einigem einigen
        einiger einiges einmal er es etwas euch euer eure eurem euren eurer eures für gegen gewesen hab habe haben hat
        hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres im in indem ins ist jede jedem
        jeden jeder jedes jene jenem jenen jener jenes jetzt kann kein keine keinem keinen keiner keines können könnte
        machen man manche manchem manchen mancher manches mein meine meinem meinen meiner meines mich mir mit muss
        musste nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner seines selbst sich sie
        sind so solche solchem solchen solcher solches soll sollte sondern sonst über um und uns unse unsem unsen
        unser unses unter viel vom von vor während war waren warst was weg weil weiter welche welchem welchen welcher
        welches wenn werde werden wie wieder will wir wird wirst wo wollen wollte würde würden zu zum zur zwar
        zwischen
    """,
    "hungarian": """
        a abban ahhoz ahogy ahol aki akik akkor alatt amely amelyek amelyekben amelyeket amelyet amelynek ami amikor
        amit amolyan amíg annak arra arról az azok azon azonban azt aztán azután azzal azért be belül benne bár cikk
        csak de e ebben eddig egy egyes egyetlen egyik egyre egyéb egész ehhez ekkor el ellen előtt elég emilyen ennek
        erre ez ezek ezen ezt ezzel ezért fel felé hanem hiszen hogy hogyan igen ill illetve ilyen ilyenkor is ismét
        itt jól jobban kell kellett keressünk keresztül ki kívül között közül le legalább legyen lehet lehetett lenne
        lenni lesz lett maga magát majd meg mellett mely melyek mert mi mikor milyen minden mindenki mindent mindig
        mint mintha mit mivel miért más másik még míg nagyobb ne nekem neki nem nincs néha néhány nélkül ő ők őket
        olyan ott össze pedig persze rá s saját sem semmi sok sokat során szemben szerint szinte számára talán tehát
        teljes tovább továbbá több ugyanis utolsó után utána vagy vagyis valaki valami valamint való van vannak vele
        vissza viszont volna volt voltak voltam voltunk által általában át és így úgy
    """,
    "italian": """
        a abbia abbiamo abbiano ad agli ai al alla alle allo anche avemmo avendo avere avesse avete aveva avevamo
        avevano avevate avevi avevo avrà avranno avremo avresti avrete avrò avuta avute avuti avuto c che chi ci coi
        col come con contro cui da dagli dai dal dall dalla dalle dallo de degli dei del dell della delle dello di dov
        dove e è ed era erano eravamo eri ero essendo fu fui furono gli ha hai hanno ho i il in io l la le lei li lo
        loro lui ma mi mia mie miei mio ne negli nei nel nell nella nelle nello noi non nostra nostre nostri nostro o
        per perché più quale quanta quante quanti quanto quella quelle quelli quello questa queste questi questo sarà
        saranno sarebbe sarei sarò se sei si sia siamo siano siete sono sta stai stanno stata stati stato sto su sua
        sue sugli sui sul sull sulla sulle sullo suo suoi ti tra tu tua tue tuo tuoi tutti tutto un una uno vi voi
        vostra vostre vostri vostro
    """,
    "norwegian": """
        alle at av bare begge ble blei bli blir blitt både båe da de deg dei deim deira deires dem den denne der dere
        deres det dette di din disse ditt du dykk dykkar då eg ein eit eitt eller elles en enn er et ett etter for
        fordi fra før ha hadde han hans har hennar henne hennes her hjå ho hoe honom hoss hossen hun hva hvem hver
        hvilke hvilken hvis hvor hvordan hvorfor i ikke ikkje ingen ingi inkje inn inni ja jeg kan kom korleis korso
        kun kunne kva kvar kvarhelst kven kvi kvifor man mange me med medan meg meget mellom men mi min mine mitt mot
        mykje ned no noe noen noka noko nokon nokor nokre nå når og også om opp oss over på samme seg selv si sia
        sidan siden sin sine sitt sjøl skal skulle slik so som somme somt så sånn til um upp ut uten var vart varte
        ved vere verte vi vil ville vore vors vort vår være vært å
    """,
    "portuguese": """
        a à ao aos aquela aquelas aquele aqueles aquilo as às até com como da das de dela delas dele deles depois do
        dos e é ela elas ele eles em entre era eram éramos essa essas esse esses esta está estamos estão estas estava
        estavam este esteja estes estive esteve estiver estou eu foi fomos for fora foram fosse fossem fui há haja hão
        havemos hei houve isso isto já lhe lhes mais mas me mesmo meu meus minha minhas muito na não nas nem no nos
        nós nossa nossas nosso nossos num numa o os ou para pela pelas pelo pelos por qual quando que quem são se seja
        sejam sem ser será serão seria seu seus só somos sou sua suas também te tem tém temos tenha tenho ter teu teus
        teve tinha tinham tive tu tua tuas um uma você vocês vos
    """,
    "romanian": """
        a acea aceasta această aceea acei aceia acel acela acele acelea acest acesta aceste acestea aceşti aceştia
        acești aceștia acolo acum ai aia aici al ale alea am ar are as aş aș asta astea astfel asupra atât au avea
        avem aveţi aveți azi aţi ați bă ca că căci când care cărei căror cărui cât câte câţi câți către ce cei cel
        cele cine cineva cît cu cum cumva da dă dacă dar dată de deci deja deoarece departe deşi deși din dinaintea
        dintr dintre doar după ea ei el ele era este eu face fără fi fie fiecare fii fim fost iar ieri îi îl îmi în
        înainte îşi își îţi îți între la lângă le li lor lui mă mai mea mei mele meu mi mie mine mult multă mulţi
        mulți ne nici nişte niște noastre noastră noi noştri noștri nostru nouă nu o ori oricare orice oricine oriunde
        pe pentru peste pînă până poate pot prea prin sa să săi sale sau său se şi și sînt sunt spre sub ta tăi tale
        tău te ţi ți ţie tine toată toate tot toţi toți totuşi totuși tu un una unde unei unele unii unor unui unul vă
        vi voastre voastră voi voştri voștri vostru vouă vreo vreun
    """,
    "russian": """
        а без более бы был была были было быть в вам вас весь во вот все всего всех вы где да даже для до его ее если
        есть ещё еще же за здесь и из или им их к как ко когда кто ли либо мне может мы на над надо наш не него нее
        нет ни них но ну о об однако он она они оно от очень по под при с со так также такой там те тем то того тоже
        той только том ты у уже хотя чего чей чем что чтобы чьё чья эта эти это этого этой этом этот эту я
    """,
    "spanish": """
        a al algo algunas algunos ante antes aquel aquella aquellas aquellos como con contra cual cuando de del desde
        donde durante e el él ella ellas ellos en entre era erais éramos eran eras eres es esa esas ese eso esos esta
        está estaba estabais estábamos estaban estabas estáis estamos están estar estará estas estás este esto estos
        estoy estuvo fue fueron fui fuimos ha había habían habéis han has hasta hay haya he hemos hubo la las le les
        lo los más me mi mí mía mías mío míos mis mucho muchos muy nada ni no nos nosotras nosotros nuestra nuestras
        nuestro nuestros o os otra otras otro otros para pero poco por porque que qué quien quienes se sea sean ser
        será serán sería si sí sido siendo sin sobre sois somos son soy su sus suya suyas suyo suyos también tanto te
        tendrá tenemos tener tengo ti tiene tienen todo todos tu tú tus tuya tuyas tuyo tuyos un una uno unos vosotras
        vosotros vuestra vuestras vuestro vuestros y ya yo
    """,
    "swedish": """
        alla allt att av blev bli blir blivit de dem den denna deras dess dessa det detta dig din dina ditt du där då
        efter ej eller en er era ert ett från för ha hade han hans har henne hennes hon honom hur här i icke ingen
        inom inte jag ju kan kunde man med mellan men mig min mina mitt mot mycket ni nu när någon något några och om
        oss på samma sedan sig sin sina sitta själv skulle som så sådan sådana sådant till under upp ut utan vad var
        vara varför varit varje vars vart vem vi vid vilka vilkas vilken vilket vår våra vårt än är åt över
    """,
    "turkish": """
        acaba ama ancak artık asla aslında az bana bazen bazı bazıları belki ben benden beni benim beş bile bir
        birçoğu birçok birisi birkaç birşey biz bize bizi bizim böyle böylece bu buna bunda bundan bunlar bunları
        bunların bunu bunun burada bütün çoğu çok çünkü da daha dahi de defa değil diğer diye dolayı eğer en fakat
        falan felan gene gibi hangi hani hatta hem henüz hep hepsi her herkes hiç hiçbir için içinde ile ise işte
        kadar kendi ki kim kime kimi kimin kimse madem mı mi mu mü nasıl ne neden nedenle nerde nerede nereye niçin
        niye o olan olarak oldu on ona ondan onlar onlara onlardan onları onların onu onun orada öyle oysa pek rağmen
        sana sanki şayet şekilde sen senden seni senin şey siz sizden size sizi sizin sonra şöyle şu şuna şunda şundan
        şunlar şunu şunun ta tabii tam tüm tümü üzere ve veya veyahut ya yani yerine yine yoksa zaten zira
    """,
}
